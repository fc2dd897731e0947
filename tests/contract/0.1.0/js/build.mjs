// Makes witness.wasm of app.js.
import { writeFile } from 'node:fs/promises';
import { componentize } from '@bytecodealliance/componentize-js';

const { component } = await componentize({
  sourcePath: 'app.js',
  witPath: 'wit/0.1.0',
  worldName: 'executor',
  disableFeatures: ['http', 'fetch-event'],
});
await writeFile('witness.wasm', component);
