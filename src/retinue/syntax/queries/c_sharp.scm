(class_declaration) @class
(record_declaration) @record
(struct_declaration) @struct
(interface_declaration) @interface
(enum_declaration) @enum
(delegate_declaration) @type
[(method_declaration) (constructor_declaration) (local_function_statement)] @method
(invocation_expression function: [
  (identifier) @call
  (generic_name (identifier) @call)
  (member_access_expression name: [(identifier) @call (generic_name (identifier) @call)])
  (conditional_access_expression (member_binding_expression name: (identifier) @call))])
(object_creation_expression type: [(identifier) @call (generic_name (identifier) @call)])
(using_directive) @import
(global_statement) @toplevel
(identifier) @named
(comment) @comment
