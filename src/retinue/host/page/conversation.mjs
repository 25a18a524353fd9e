// A conversation as it is shown: results beside their calls, turns and messages with what the log of
// the run knows of them.

// A run that continues another has its messages first. Of these turns and mails its own log knows
// nothing: they have no number and no receipt.
export function itemsOf(messages, phases) {
  const results = new Map(messages.filter((m) => m.role === "tool").map((m) => [m.call_id, m]));
  const replies = messages.filter((m) => m.role === "assistant").length;
  const mails = [...phases.mails];
  const out = [];
  let n = phases.turns.length - replies;
  for (const [at, message] of messages.entries()) {
    if (message.role === "assistant") {
      const turn = phases.turns[n++];
      out.push({ kind: "turn", n: turn?.n ?? 0, turn, at });
      if (message.text) out.push({ kind: "say", text: message.text });
      if (message.calls?.length) out.push({ kind: "calls", calls: message.calls.map((call, index) => ({ call, index, turn, result: results.get(call.id) })) });
    } else if (message.role === "user") {
      const isMail = message.kind === "mail" && !message.sender;
      const known = isMail ? mails.findIndex((mail) => mail.text === message.text) : -1;
      out.push({ kind: isMail ? "mail" : "note", message, mail: known < 0 ? null : mails.splice(known, 1)[0] });
    }
  }
  for (const mail of mails) out.push({ kind: "mail", message: { text: mail.text }, mail });
  return out;
}
