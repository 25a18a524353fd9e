"""The pictures of the documentation: real runs in a real terminal (tmux), with only the model
replaced by a script. `make pictures` takes them."""
