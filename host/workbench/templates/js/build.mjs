// Makes {{name}}.wasm of app.js.
import { writeFile } from 'node:fs/promises';
import { componentize } from '@bytecodealliance/componentize-js';

const { component } = await componentize({
  sourcePath: 'app.js',
  witPath: 'wit/0.1.0',
  worldName: 'executor',
  // The engine's own fetch() is another way out than the one that the host grants: use `talaria:executor/http`.
  disableFeatures: ['http', 'fetch-event'],
});
await writeFile('{{name}}.wasm', component);
