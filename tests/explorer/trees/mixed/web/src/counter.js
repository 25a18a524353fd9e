export class Counter {
  constructor(node) {
    this.node = node;
  }

  show(count) {
    this.node.textContent = `${count} apples`;
  }
}
