"""What people and tools read: text, HTML, JSON, JUnit, SARIF, ITF, Perfetto."""
