package main

import (
	"log"

	"example.com/postbox/internal/queue"
	"example.com/postbox/internal/server"
)

func main() {
	q := queue.New(100)
	log.Fatal(server.Serve(":2525", q))
}
