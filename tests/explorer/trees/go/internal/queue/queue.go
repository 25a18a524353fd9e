// Package queue holds letters until somebody takes them.
package queue

import (
	"sync"

	"example.com/postbox/internal/mail"
)

// Queue is safe for many goroutines.
type Queue struct {
	mu    sync.Mutex
	kept  []mail.Message
	limit int
}

// New makes a queue of at most so many letters.
func New(limit int) *Queue {
	return &Queue{limit: limit}
}

// Put adds a letter; false when the queue is full.
func (q *Queue) Put(m mail.Message) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.kept) >= q.limit {
		return false
	}
	q.kept = append(q.kept, m)
	return true
}

// Take removes the oldest letter.
func (q *Queue) Take() (mail.Message, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.kept) == 0 {
		return mail.Message{}, false
	}
	m := q.kept[0]
	q.kept = q.kept[1:]
	return m, true
}
