#!/bin/sh
# Copies the service to the barn.
upload() {
    scp -r service barn:orchard
}

upload
