package queue

import (
	"time"

	"example.com/postbox/internal/mail"
)

// PutWithRetry waits for room, twice as long each time.
func (q *Queue) PutWithRetry(m mail.Message, attempts int) bool {
	pause := 10 * time.Millisecond
	for i := 0; i < attempts; i++ {
		if q.Put(m) {
			return true
		}
		time.Sleep(pause)
		pause *= 2
	}
	return false
}
