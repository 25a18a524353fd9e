/** The server's side of the wire. */
import { Board } from '../board/board';
import { decode } from './wire';

export function serve(board: Board, port: number): void {
  const state = { board, port };
  state.board = decode('{}', state.board);
}
