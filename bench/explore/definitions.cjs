// Definitions as the TypeScript compiler sees them: `node definitions.cjs COMPILER < list of files`.
const fs = require("node:fs");
const ts = require(process.argv[2]);
const kind = ts.SyntaxKind;
const isFunction = (node) => node && (node.kind === kind.ArrowFunction || node.kind === kind.FunctionExpression);
const TYPES = new Set([kind.ClassDeclaration, kind.ClassExpression, kind.InterfaceDeclaration, kind.EnumDeclaration, kind.TypeAliasDeclaration]);
const NAMED = new Set([kind.FunctionDeclaration, kind.MethodDeclaration, kind.MethodSignature, kind.GetAccessor, kind.SetAccessor]);

for (const path of fs.readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const source = ts.createSourceFile(path, fs.readFileSync(path, "utf8"), ts.ScriptTarget.Latest, true);
  const tell = (side, name, at) => {
    const line = source.getLineAndCharacterOfPosition(at.getStart(source)).line + 1;
    console.log(JSON.stringify([path, name.getText ? name.getText(source) : name, line, side]));
  };
  const visit = (node) => {
    if (TYPES.has(node.kind) && node.name) tell("type", node.name, node.name);
    else if (NAMED.has(node.kind) && node.name) tell("callable", node.name, node.name);
    else if (node.kind === kind.Constructor) tell("callable", "constructor", node);
    else if (node.kind === kind.VariableDeclaration && isFunction(node.initializer) && ts.isIdentifier(node.name)) tell("callable", node.name, node.name);
    else if (node.kind === kind.PropertyAssignment && isFunction(node.initializer) && ts.isIdentifier(node.name)) tell("callable", node.name, node.name);
    else if (ts.isBinaryExpression(node) && node.operatorToken.kind === kind.EqualsToken && isFunction(node.right)) {
      if (ts.isIdentifier(node.left)) tell("callable", node.left, node.left);
      else if (ts.isPropertyAccessExpression(node.left)) tell("callable", node.left.name, node.left.name);
    } else if (node.kind === kind.FunctionExpression && node.name) {
      const over = node.parent;
      const named = ts.isVariableDeclaration(over) || ts.isPropertyAssignment(over) || (ts.isBinaryExpression(over) && over.operatorToken.kind === kind.EqualsToken);
      if (!named) tell("callable", node.name, node.name);
    }
    ts.forEachChild(node, visit);
  };
  visit(source);
}
