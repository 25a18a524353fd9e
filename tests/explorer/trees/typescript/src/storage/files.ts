import { readFile, writeFile } from 'node:fs/promises';
import { Board } from '../board/board';

export async function loadBoard(path: string): Promise<Board> {
  return new Board(JSON.parse(await readFile(path, 'utf8')).lanes);
}

export async function saveBoard(path: string, board: Board): Promise<void> {
  await writeFile(path, JSON.stringify({ lanes: board.lanes }));
}
