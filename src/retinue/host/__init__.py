"""The process that holds a store, and everything a client needs to start work: plans, requests,
following a tree, and listing."""
