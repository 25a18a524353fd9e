import { Counter } from './counter.js';
import { fetchCount } from './api.js';

export async function start(node) {
  new Counter(node).show(await fetchCount());
}
