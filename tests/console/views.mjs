// Every view, before a release: what operators do with them, what others may write into them, and how they look to people who
// see or point differently. The pictures are for a person to look at.

import { createRequire } from 'node:module';
import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';

import { Bridge, component, patched } from './bridge.mjs';
import { ADMIN, CONFORMANCE, DEMO, SECRET, TOKEN } from './gate.mjs';
import { expect, until } from './harness.mjs';

const AXE = await readFile(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');

/** Texts in the bytes of the component `conformance`, and others of the same length that want to be markup. */
const HOSTILE_NAME = [['conformance', '<img src=x>']];
const HOSTILE_TEXTS = [
  ['conformance0.1.0Answers', 'conformance<i>\u0007!Answers'],
  ['A2A conformance', '<img src="/x"/>'],
  ['Answer to a message', '<b onclick=a()>Ans<'],
];
/** Versions and the audit log are kept beside a store in a file. */
const KEPT = '[executors]\ndefault = "conformance"\n';
/** Markup, a sound, a turn of the direction of writing, a zero width space, a terminal's escape, a null. */
const NASTY = 'a <img src=x onerror="alert(1)"><script>alert(2)</script><b>bold</b> & "q" \u0007 \u202Egnp.exe \u200B \u001b[31m end';

export const views = [
  { name: 'a component with hostile texts is swapped in, live', run: swap },
  { name: 'a reply full of markup and control characters is text', run: nasty },
  { name: 'a denied call names the line that allows it', run: denied },
  { name: 'an upload is probed step by step, or refused', run: upload },
  { name: 'settings are a form that checks what is typed', run: settings },
  { name: 'a question is answered beside the waterfall', run: answer },
  { name: 'filters are in the address', run: filters },
  { name: 'a bridge that goes away comes back', run: away },
  { name: 'every view in light and dark, wide and narrow, without findings of axe', run: axe },
];

async function signedIn(journey, config, options = {}) {
  const { flags, files, ...view } = options;
  const bridge = await journey.up(Bridge.start(config + ADMIN, { env: SECRET, flags: flags ?? [], ...files }));
  const page = await journey.page(bridge, view);
  await page.getByLabel('Admin token').fill(TOKEN);
  await page.getByRole('button', { name: 'Sign in' }).click();
  await page.locator('h1#heading').waitFor();
  await until(page, 'the sign-in is over', () => !document.querySelector('#token'));
  return { bridge, page };
}

async function put(bridge, name, type, body) {
  const response = await fetch(`${bridge.admin.replace(/\/$/, '')}/executors/${name}`, {
    method: 'PUT',
    headers: { authorization: `Bearer ${TOKEN}`, 'content-type': type },
    body,
  });
  expect(response.ok, `the upload is taken, not ${response.status}: ${await response.clone().text()}`);
  return response.json();
}

async function swap(journey) {
  const { bridge, page } = await signedIn(journey, KEPT, { path: '#/executors' });
  await put(bridge, 'probe', 'application/wasm', await readFile(component('conformance')));
  const row = page.locator('tbody tr', { hasText: 'probe' }).first();
  await row.waitFor();
  const before = await row.locator('code').innerText();
  await page.getByRole('link', { name: 'probe', exact: true }).first().click();
  await page.getByRole('region', { name: 'In service' }).getByText('conformance', { exact: true }).waitFor();
  const { executor } = await put(bridge, 'probe', 'application/wasm', await patched('conformance', HOSTILE_TEXTS));
  expect(executor.current.version === '<i>\u0007!', `the component has the hostile version, not ${executor.current.version}`);
  // Without a reload of the page.
  await page.getByRole('region', { name: 'In service' }).getByText('<i>U+0007!', { exact: true }).waitFor();
  await page.locator('form.settings').getByText('<b onclick=a()>Ans<').waitFor();
  await page.getByRole('region', { name: 'Audit' }).getByText('swapped').first().waitFor();
  expect((await page.locator('img, i, [onclick]').count()) === 0, 'a text is never an element');
  await journey.picture(page, 'executor');
  await page.getByRole('link', { name: '← Executors' }).click();
  await until(page, 'the new digest is in the list', (old) => ![...document.querySelectorAll('tbody tr')].some((row) => row.textContent.includes('probe') && row.textContent.includes(old)), before);
  await journey.picture(page, 'executors');
  await page.getByRole('link', { name: 'probe', exact: true }).first().click();
  await page.getByRole('button', { name: 'Roll back' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Roll back' }).click();
  await page.getByRole('region', { name: 'In service' }).getByText('conformance', { exact: true }).waitFor();
  await page.getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Remove' }).click();
  await page.getByRole('heading', { name: 'Executors' }).waitFor();
  await until(page, 'the executor is gone', () => ![...document.querySelectorAll('table.executors tbody tr')].some((row) => row.textContent.includes('probe')));
}

async function nasty(journey) {
  const bridge = await journey.up(Bridge.start(CONFORMANCE));
  const page = await journey.page(bridge, { path: '#/try' });
  await page.getByLabel('Message', { exact: true }).fill(NASTY);
  await page.getByRole('button', { name: 'Send' }).click();
  const reply = page.locator('.bubble-agent').last();
  await reply.locator('.state', { hasText: 'completed' }).waitFor();
  const markup = ['<img src=x onerror="alert(1)">', '<script>alert(2)</script>', '<b>bold</b>'];
  const hidden = ['U+202E', 'U+200B', 'U+0007', 'U+001B'];
  const look = async (where, label, parts = [...markup, ...hidden]) => {
    const text = await where.innerText();
    for (const part of parts) {
      expect(text.includes(part), `${label} shows ${part} as text: ${text}`);
    }
    // eslint-disable-next-line no-control-regex
    expect(!/[\u0007\u001b\u202e\u200b]/.test(text), `${label} has no character that cannot be seen`);
    expect((await where.locator('img, script, b').count()) === 0, `${label} has no element of the caller's`);
  };
  await look(reply, 'the reply');
  await journey.picture(page, 'hostile reply');
  const { id } = await bridge.send(NASTY);
  await page.goto(`${page.url().split('#')[0]}#/turns`);
  const row = page.locator(`[data-task="${id}"]`);
  await row.waitFor();
  // What operators read is scrubbed: some characters that cannot be seen are gone before they come here.
  await look(row, 'the row', markup);
  await row.getByRole('link').click();
  await page.getByRole('region', { name: 'Conversation' }).getByText('Completed:').first().waitFor();
  await look(page.locator('.bubble-user').first(), 'the message', [...markup, 'U+0007', 'U+001B']);
  await look(page.locator('.bubble-agent').first(), 'the answer', [...markup, 'U+0007', 'U+001B']);
  await look(page.getByRole('region', { name: 'Events', exact: true }), 'the table of events', markup);
}

async function denied(journey) {
  // A component that is not built in gets what its section grants, and this one grants nothing.
  const config = `${DEMO}[executor.stranger]\ncomponent = ${JSON.stringify(component('chat-completions'))}\n`;
  const bridge = await journey.up(Bridge.start(config, { flags: ['--demo'] }));
  const { id } = await bridge.send('hello', { executor: 'stranger' });
  const page = await journey.page(bridge, { path: `#/turns/${id}` });
  await page.locator('h1 ~ p .state', { hasText: 'failed' }).waitFor();
  const step = page.locator('.wf-denied').first();
  await step.getByText('denied', { exact: true }).waitFor();
  const line = await step.locator('.grant code').innerText();
  expect(/^egress = \[".+"\]/.test(line), `the line of policy is named: ${line}`);
  await step.getByRole('button', { name: 'Copy line' }).click();
  expect((await page.evaluate(() => navigator.clipboard.readText())) === line, 'the line is copied');
  await journey.picture(page, 'denied');
  await page.goto(`${page.url().split('#')[0]}#/executors/stranger`);
  await page.getByRole('region', { name: 'Needs and grants', exact: true }).getByText('denied', { exact: true }).first().waitFor();
}

async function upload(journey) {
  const { page, bridge } = await signedIn(journey, KEPT, { path: '#/executors' });
  const good = join(bridge.folder, 'good.wasm');
  const bad = join(bridge.folder, 'bad.wasm');
  await writeFile(good, await readFile(component('conformance')));
  const hostile = join(bridge.folder, 'hostile.wasm');
  await writeFile(bad, 'this is no component');
  await writeFile(hostile, await patched('conformance', HOSTILE_NAME));
  await page.getByLabel('Name').fill('Not A Name');
  await page.getByLabel('Component').setInputFiles(good);
  await page.getByRole('button', { name: 'Add' }).click();
  await page.getByRole('alert').getByText('lower-case').waitFor();
  await page.getByLabel('Name').fill('added');
  await page.getByRole('button', { name: 'Add' }).click();
  const steps = page.getByRole('status', { name: 'Add' });
  await steps.locator('.step-done', { hasText: 'In service' }).waitFor();
  for (const step of ['Files sent', 'Component checked and compiled', 'Probed']) await steps.locator('.step-done', { hasText: step }).waitFor();
  await journey.picture(page, 'upload');
  await page.getByRole('link', { name: 'added', exact: true }).first().click();
  await page.getByRole('heading', { name: 'added' }).waitFor();
  await page.getByLabel('Component').setInputFiles(bad);
  await page.getByRole('button', { name: 'Swap' }).click();
  const refused = page.getByRole('status', { name: 'Swap' });
  await refused.locator('.step-bad').waitFor();
  await refused.getByText('the version in service was not touched').waitFor();
  await page.getByLabel('Component').setInputFiles(hostile);
  await page.getByRole('button', { name: 'Swap' }).click();
  await refused.locator('.step-bad', { hasText: '<img src=x>' }).waitFor();
  expect((await page.locator('img').count()) === 0, 'a name is never an element');
  await page.getByRole('region', { name: 'In service' }).getByText('conformance', { exact: true }).waitFor();
}

async function settings(journey) {
  const { page, bridge } = await signedIn(journey, KEPT, { path: '#/executors' });
  await put(bridge, 'set', 'application/wasm', await readFile(component('chat-completions')));
  await page.getByRole('link', { name: 'set', exact: true }).first().click();
  await page.getByRole('heading', { name: 'set', exact: true }).waitFor();
  const form = page.locator('form.settings');
  await form.getByLabel('model').fill('another-model');
  await form.getByLabel('on_restart').selectOption('retry');
  await form.getByText('Not saved.').waitFor();
  await form.getByRole('button', { name: 'Undo' }).click();
  expect((await form.getByLabel('model').inputValue()) === '', 'undo brings back what was there');
  await form.getByLabel('model').fill('another-model');
  await form.getByRole('button', { name: 'Save settings' }).click();
  await form.getByText('In effect.').waitFor();
  const admin = bridge.admin.replace(/\/$/, '');
  const shown = await (await fetch(`${admin}/executors/set`, { headers: { authorization: `Bearer ${TOKEN}` } })).json();
  const { settings } = shown;
  expect(settings.model === 'another-model', `the settings are in effect: ${JSON.stringify(settings)}`);
}

async function answer(journey) {
  const bridge = await journey.up(Bridge.start(CONFORMANCE));
  const { id } = await bridge.send('tck-input-required');
  const page = await journey.page(bridge, { path: `#/turns/${id}` });
  await page.getByText('It waits for an answer.').waitFor();
  await page.getByLabel('Answer', { exact: true }).fill('here it is');
  await page.getByRole('button', { name: 'Answer', exact: true }).click();
  await page.locator('h1 ~ p .state', { hasText: 'completed' }).waitFor();
  await page.getByRole('region', { name: 'Conversation' }).getByText('Completed: here it is').first().waitFor();
  await page.getByRole('region', { name: 'Timeline of message 2' }).waitFor();
}

async function filters(journey) {
  const bridge = await journey.up(Bridge.start(CONFORMANCE));
  for (const text of ['alpha one', 'alpha two', 'beta', 'tck-task-failure', 'tck-input-required']) await bridge.send(text);
  const page = await journey.page(bridge, { path: '#/turns' });
  const rows = page.locator('tbody tr');
  await until(page, 'five turns', () => document.querySelectorAll('tbody tr').length === 5);
  await page.keyboard.press('/');
  await page.locator('#search:focus').waitFor();
  await page.keyboard.type('alpha');
  await until(page, 'two turns', () => document.querySelectorAll('tbody tr').length === 2);
  expect(page.url().includes('search=alpha'), 'the search is in the address');
  await page.reload();
  await until(page, 'two turns after a reload', () => document.querySelectorAll('tbody tr').length === 2);
  await bridge.send('gamma');
  const { id } = await bridge.send('alpha three');
  await page.locator(`[data-task="${id}"]`).waitFor();
  expect((await rows.count()) === 3, 'what does not fit does not appear');
  await page.getByLabel('Search in tasks, contexts and messages').fill('');
  await page.getByLabel('State').selectOption('failed');
  await until(page, 'one turn', () => document.querySelectorAll('tbody tr').length === 1);
  await page.keyboard.press('Escape');
  await page.keyboard.press('j');
  await page.keyboard.press('Enter');
  await page.getByRole('region', { name: 'Timeline' }).waitFor();
  await page.getByText('failed as asked').first().waitFor();
  await page.keyboard.press('Escape');
  await until(page, 'the filter is still there', () => location.hash.includes('state=failed') && document.querySelectorAll('tbody tr').length === 1);
}

async function away(journey) {
  const first = await Bridge.start(CONFORMANCE);
  const port = new URL(first.admin).port;
  journey.bridges.push(first);
  const page = await journey.page(first, { path: '#/turns' });
  await page.locator('.state', { hasText: 'live' }).waitFor();
  await first.stop({ keep: true });
  await page.getByText('The bridge cannot be reached').waitFor();
  await journey.picture(page, 'away');
  const admin = `[admin]\nlisten = "127.0.0.1:${port}"\n`;
  const second = await journey.up(Bridge.start(CONFORMANCE + admin, { folder: first.folder }));
  await page.locator('.state', { hasText: 'live' }).waitFor();
  await page.getByText('The bridge cannot be reached').waitFor({ state: 'detached' });
  const { id } = await second.send('again');
  await page.locator(`[data-task="${id}"]`).waitFor();
}

async function axe(journey) {
  const { bridge, page } = await signedIn(journey, `${DEMO}[executor.stranger]\ncomponent = ${JSON.stringify(component('chat-completions'))}\n`, { flags: ['--demo'] });
  for (let round = 0; round < 12; round += 1) await bridge.send(`what is the weather in city ${round}?`);
  const tool = await bridge.send('use a tool and write a long answer');
  await bridge.send('fail this one');
  await bridge.send('hello', { executor: 'stranger' });
  const asked = await bridge.send('tck-input-required', { executor: 'asker' });
  await bridge.send('tck-cancel', { executor: 'asker' });
  await bridge.send('slow answer');
  // A bucket of the last hour ends every ten seconds.
  await until(page, 'the turns are in the numbers', () => /Turns, last hour\s*1\d/.test(document.body.innerText));
  const base = page.url().split('#')[0];
  const shown = [
    ['overview', '#/overview'],
    ['turns', '#/turns'],
    ['turn', `#/turns/${tool.id}`],
    ['question', `#/turns/${asked.id}`],
    ['executors', '#/executors'],
    ['settings', '#/executors/chat-completions'],
    ['try', '#/try'],
    ['nothing', '#/nothing'],
  ];
  let looked = 0;
  const findings = [];
  for (const dark of [false, true]) {
    await page.emulateMedia({ colorScheme: dark ? 'dark' : 'light', reducedMotion: 'reduce' });
    for (const width of [1360, 360]) {
      await page.setViewportSize({ width, height: width === 360 ? 740 : 900 });
      for (const [name, path] of shown) {
        await page.goto(base + path);
        await page.locator('h1#heading').waitFor();
        await page.waitForTimeout(300);
        await journey.picture(page, `${name} ${dark ? 'dark' : 'light'} ${width}`);
        const wide = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
        if (wide > 0) findings.push(`${name} at ${width}: ${wide} px too wide`);
        findings.push(...(await check(page, `${name} ${dark ? 'dark' : 'light'} ${width}`)));
        looked += 1;
      }
    }
  }
  await page.getByRole('button', { name: 'Keys' }).click();
  findings.push(...(await check(page, 'keys')));
  await page.keyboard.press('Escape');
  await page.getByRole('button', { name: 'Sign out' }).click();
  await page.getByLabel('Admin token').waitFor();
  findings.push(...(await check(page, 'sign-in')));
  await journey.picture(page, 'sign in');
  journey.note(`${looked + 2} pages`);
  expect(findings.length === 0, `no findings:\n${[...new Set(findings)].join('\n')}`);
}

/** What axe finds in a page. Its script is run by the browser's own tools, which the content security policy does not bind. */
async function check(page, name) {
  await page.evaluate(AXE);
  const { violations } = await page.evaluate(() => window.axe.run(document, { resultTypes: ['violations'] }));
  return violations.flatMap(({ id, nodes }) => nodes.slice(0, 3).map((node) => `${name}: ${id}: ${node.target.join(' ')}: ${node.failureSummary?.split('\n').slice(1).join(' ').trim()}`));
}
