; What TypeScript has beside JavaScript.
(abstract_class_declaration) @class
(interface_declaration) @interface
(enum_declaration) @enum
(type_alias_declaration) @type
(function_signature) @function
[(method_signature) (abstract_method_signature)] @method
(internal_module) @module
