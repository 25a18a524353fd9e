(class_declaration) @class
(interface_declaration) @interface
(trait_declaration) @trait
(enum_declaration) @enum
(function_definition) @function
(method_declaration) @method
(anonymous_class) @anonymous
(function_call_expression function: [(name) @call (qualified_name (name) @call)])
[(member_call_expression name: (name) @call) (nullsafe_member_call_expression name: (name) @call) (scoped_call_expression name: (name) @call)]
(object_creation_expression [(name) @call (qualified_name (name) @call)])
(namespace_use_declaration) @import
(comment) @comment
(attribute_list) @attribute
