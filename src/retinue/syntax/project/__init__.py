"""What a project says of itself: manifests and README, each statement with its place."""
