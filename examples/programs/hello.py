"""One agent, one question, in a program without an event loop."""

from retinue import Agent, run_sync

guide = Agent("guide", "Answer in one sentence.", model="anthropic:claude-sonnet-5-5")

if __name__ == "__main__":
    outcome = run_sync(guide, "Why is the sky blue?")
    print(outcome.text)
    print(f"{outcome.state}: {outcome.usage.tokens} tokens, ${outcome.usage.usd:.4f}")
