"""The trees are material, not tests."""

collect_ignore_glob = ["trees/*"]
