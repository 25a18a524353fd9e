(function_declaration) @function
(method_declaration) @method
(type_spec type: (struct_type)) @struct
(type_spec type: (interface_type)) @interface
[(type_spec) (type_alias)] @type
(call_expression function: [(identifier) @call (selector_expression field: (_) @call)])
(import_spec) @import
(type_identifier) @named
(comment) @comment
