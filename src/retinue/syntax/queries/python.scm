; Captures are named by what they are: a kind of definition (the whole node), call, import, comment, and so on.
(class_definition) @class
(function_definition) @function
(decorated_definition) @decorated
(call function: [(identifier) @call (attribute attribute: (identifier) @call)])
[(import_statement) (import_from_statement) (future_import_statement)] @import
