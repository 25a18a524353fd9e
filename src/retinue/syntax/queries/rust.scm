[(function_item) (function_signature_item)] @function
(struct_item) @struct
(enum_item) @enum
(union_item) @union
(trait_item) @trait
(type_item) @type
(mod_item body: (_)) @module
(macro_definition) @macro
(impl_item) @holder
(call_expression function: [
  (identifier) @call
  (field_expression field: (field_identifier) @call)
  (scoped_identifier name: (_) @call)
  (generic_function function: [(identifier) @call (scoped_identifier name: (_) @call) (field_expression field: (_) @call)])])
(macro_invocation macro: [(identifier) @call (scoped_identifier name: (_) @call)])
[(use_declaration) (mod_item !body)] @import
(type_identifier) @named
(scoped_type_identifier) @scoped
[(line_comment) (block_comment)] @comment
(attribute_item) @attribute
