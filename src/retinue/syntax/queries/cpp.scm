; What C++ has beside C.
(class_specifier name: (_) body: (_)) @class
(namespace_definition name: (_)) @namespace
(alias_declaration) @type
(call_expression function: [
  (qualified_identifier name: (identifier) @call)
  (qualified_identifier name: (qualified_identifier name: (identifier) @call))
  (template_function name: (identifier) @call)])
(template_parameter_list) @attribute
