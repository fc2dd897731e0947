// `main.mjs [--gate] [FILTER]`: the journeys through the console, see ARCHITECTURE.md and `cargo xtask console-test`.

import { gate } from './gate.mjs';
import { run } from './harness.mjs';
import { views } from './views.mjs';

const args = process.argv.slice(2);
const filter = args.find((arg) => !arg.startsWith('--'));
const failed = await run(args.includes('--gate') ? gate : [...gate, ...views], { filter });
process.exitCode = failed > 0 ? 1 : 0;
