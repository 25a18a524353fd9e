// Package mail has what a letter is made of.
package mail

import "strings"

// Message is one letter.
type Message struct {
	ID      string
	From    string
	To      []string
	Subject string
	Body    string
}

// Address is who a letter is for.
type Address string

// Host is the part behind the at sign.
func (a Address) Host() string {
	_, host, _ := strings.Cut(string(a), "@")
	return host
}
