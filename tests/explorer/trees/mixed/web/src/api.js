export async function fetchCount() {
  const reply = await fetch('/count');
  return reply.json();
}
