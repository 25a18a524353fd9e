module example.com/postbox

go 1.22

require (
	github.com/google/uuid v1.6.0
	golang.org/x/sync v0.7.0 // indirect
)
