"""The simulated world: real coordinator and handles, a store, a clock and ids that a scheduler owns."""
