export { Board } from './board/board';
export type { Card } from './board/card';
export { connect } from './sync/client';
