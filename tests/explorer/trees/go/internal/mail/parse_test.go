package mail

import "testing"

func TestParseNeedsASender(t *testing.T) {
	if _, err := Parse("Subject: x"); err != ErrNoSender {
		t.Fatal(err)
	}
}

func TestHost(t *testing.T) {
	if Address("a@b").Host() != "b" {
		t.Fatal("host")
	}
}
