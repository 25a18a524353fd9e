package mail

import (
	"errors"
	"strings"
)

// ErrNoSender is returned for a letter that says nothing of where it comes from.
var ErrNoSender = errors.New("mail: no sender")

// Parse reads a letter from its lines.
func Parse(text string) (Message, error) {
	m := Message{}
	for _, line := range strings.Split(text, "\n") {
		if from, ok := strings.CutPrefix(line, "From: "); ok {
			m.From = from
		}
	}
	if m.From == "" {
		return m, ErrNoSender
	}
	return m, nil
}
