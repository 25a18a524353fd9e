#!/usr/bin/env node
import { Board } from './board/board';
import { serve } from './sync/server';
import { loadBoard } from './storage/files';

async function main(): Promise<void> {
  const board: Board = await loadBoard(process.argv[2] ?? 'board.json');
  serve(board, 7070);
}

void main();
