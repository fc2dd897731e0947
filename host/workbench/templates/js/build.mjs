// Builds {{name}}.wasm from app.js.
import { writeFile } from 'node:fs/promises';
import { componentize } from '@bytecodealliance/componentize-js';

const { component } = await componentize({
  sourcePath: 'app.js',
  witPath: 'wit/0.1.0',
  worldName: 'executor',
  // The engine's own fetch() bypasses the grant; use `talaria:executor/http` instead.
  disableFeatures: ['http', 'fetch-event'],
});
await writeFile('{{name}}.wasm', component);
