(class) @class
(module) @module
[(method) (singleton_method)] @method
(call method: [(identifier) (constant)] @call)
(call method: (identifier) @_r arguments: (argument_list . (string)) (#any-of? @_r "require" "require_relative")) @import
(call !receiver method: (identifier) @_t arguments: (argument_list . (string)) (#any-of? @_t "it" "specify")) @case
(constant) @named
(comment) @comment
