/** The browser's side of the wire. */
import { Board, Change } from '../board/board';
import { decode } from './wire';
import { withRetry } from './retry';

export interface Connection {
  send(change: Change): void;
}

export async function connect(url: string, board: Board): Promise<Connection> {
  const socket = await withRetry(() => open(url), 5);
  socket.onmessage = (event: { data: string }) => decode(event.data, board);
  return { send: (change) => socket.send(JSON.stringify(change)) };
}

async function open(url: string): Promise<any> {
  return { url, send: () => undefined, onmessage: undefined };
}
