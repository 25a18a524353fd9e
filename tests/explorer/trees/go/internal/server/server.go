// Package server speaks to those who bring mail.
package server

import (
	"net"

	"example.com/postbox/internal/mail"
	"example.com/postbox/internal/queue"
)

// Session is one caller.
type Session struct {
	conn  net.Conn
	queue *queue.Queue
}

// Serve listens until it fails.
func Serve(address string, q *queue.Queue) error {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	for {
		conn, err := listener.Accept()
		if err != nil {
			return err
		}
		go (&Session{conn, q}).run()
	}
}

func (s *Session) run() {
	defer s.conn.Close()
	buffer := make([]byte, 64_000)
	n, _ := s.conn.Read(buffer)
	if m, err := mail.Parse(string(buffer[:n])); err == nil {
		s.queue.PutWithRetry(m, 5)
	}
}
