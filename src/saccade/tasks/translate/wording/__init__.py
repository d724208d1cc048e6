"""Words that people insist on: terms of a glossary, and placeholders."""
