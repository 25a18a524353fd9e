"""One module a dialect: each turns a document into an `AgentSpec`, and says what it did not
understand."""
