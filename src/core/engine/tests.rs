//! Rules of the engine, each with a test that fails when the rule is broken.
