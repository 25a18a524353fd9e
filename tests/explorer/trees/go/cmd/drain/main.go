// Command drain empties a queue onto the terminal.
package main

import (
	"fmt"

	"example.com/postbox/internal/queue"
)

func main() {
	q := queue.New(1)
	for m, ok := q.Take(); ok; m, ok = q.Take() {
		fmt.Println(m.Subject)
	}
}
