(class_declaration "interface") @interface
(class_declaration (modifiers (class_modifier "enum"))) @enum
(class_declaration (modifiers (class_modifier "annotation"))) @annotation
(class_declaration) @class
[(object_declaration) (companion_object)] @class
(type_alias) @type
(function_declaration) @function
(object_literal) @anonymous
(call_expression . [(identifier) @call (navigation_expression (identifier) @call .)])
(import) @import
(identifier) @named
[(line_comment) (block_comment)] @comment
