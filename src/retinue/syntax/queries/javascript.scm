[(class_declaration) (class name: (_))] @class
[(function_declaration) (generator_function_declaration)] @function
(variable_declarator name: (identifier) value: [(arrow_function) (function_expression) (generator_function)]) @function
(assignment_expression left: (identifier) right: [(arrow_function) (function_expression)]) @function
(assignment_expression left: (member_expression property: [(property_identifier) (private_property_identifier)]) right: [(arrow_function) (function_expression)]) @method
(pair key: (property_identifier) value: [(arrow_function) (function_expression)]) @method
(method_definition) @method
(class !name) @anonymous
(function_expression name: (_)) @inner
(call_expression function: [(identifier) @call (member_expression property: (_) @call)])
(new_expression constructor: [(identifier) @call (member_expression property: (_) @call)])
[(import_statement source: (_)) (export_statement source: (_))] @import
(call_expression function: [(identifier) (import)] @_require arguments: (arguments . (string)) (#any-of? @_require "require" "import")) @import
(call_expression function: (identifier) @_t arguments: (arguments . [(string) (template_string) (binary_expression)])
  (#any-of? @_t "it" "test" "specify")) @case
(call_expression function: (member_expression object: (identifier) @_t property: (_) @_p) arguments: (arguments . [(string) (template_string) (binary_expression)])
  (#any-of? @_t "it" "test" "specify") (#any-of? @_p "only" "skip" "failing" "concurrent")) @case
(comment) @comment
(decorator) @attribute
