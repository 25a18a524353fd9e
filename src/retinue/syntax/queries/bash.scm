(function_definition) @function
(command name: (command_name) @call)
(command name: (command_name (word) @_s) (#any-of? @_s "source" ".")) @import
(comment) @comment
