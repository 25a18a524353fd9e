(function_definition) @function
(struct_specifier name: (_) body: (_)) @struct
(union_specifier name: (_) body: (_)) @union
(enum_specifier name: (_) body: (_)) @enum
(type_definition) @type
[(preproc_def) (preproc_function_def)] @macro
(call_expression function: [(identifier) @call (field_expression field: (_) @call)])
(preproc_include path: (_)) @import
(type_identifier) @named
(comment) @comment
