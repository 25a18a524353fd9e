(class_declaration) @class
(record_declaration) @record
(interface_declaration) @interface
(annotation_type_declaration) @annotation
(enum_declaration) @enum
[(method_declaration) (constructor_declaration) (compact_constructor_declaration) (annotation_type_element_declaration)] @method
(object_creation_expression (class_body)) @anonymous
(enum_constant body: (class_body)) @anonymous
(method_invocation name: (_) @call)
(object_creation_expression type: [(type_identifier) @call (generic_type . (type_identifier) @call)])
(import_declaration) @import
[(line_comment) (block_comment)] @comment
