"""The process that holds a store, and everything a door needs to start work: plans, requests,
following a tree, and listing."""
