// The three journeys of the gate: an operator looks at what runs and cancels it, talks to the agent, and does without a mouse.

import { Bridge } from './bridge.mjs';
import { expect, until } from './harness.mjs';

export const CONFORMANCE = '[executors]\ndefault = "conformance"\n[store]\nurl = "memory:"\n';
export const TOKEN = 'token-of-the-operator-of-this-test';
export const ADMIN = '[admin]\nlisten = "127.0.0.1:0"\ntoken = { env = "ADMIN_TOKEN" }\n';
export const SECRET = { ADMIN_TOKEN: TOKEN };

/** An event is on screen within this time. */
const SOON = 200;

/** Both executors: one streams from the demo gateway, the other asks. */
export const DEMO = `[executors]
default = "chat-completions"
caller_may_choose = true
[executor.chat-completions]
component = "builtin:chat-completions"
[executor.asker]
component = "builtin:conformance"
[store]
url = "memory:"
`;

export const gate = [
  { name: 'a turn appears, its waterfall shows, and it is cancelled', run: cancel },
  { name: 'an answer streams, and an approval is answered', run: talk },
  { name: 'signing in and reading executors without a mouse', run: keyboard },
];

async function cancel(journey) {
  const bridge = await journey.up(Bridge.start(CONFORMANCE));
  const page = await journey.page(bridge);
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  await page.getByText('Ready', { exact: true }).first().waitFor();
  await page.locator('.card', { hasText: 'conformance' }).getByText('ready', { exact: true }).waitFor();

  await page.getByRole('link', { name: 'Turns', exact: true }).click();
  await page.getByText('Nothing yet').waitFor();
  await page.locator('.state', { hasText: 'live' }).waitFor();
  // When the row of a task is there, by the clock that the bridge has too.
  await page.evaluate(() => {
    window.seen = {};
    new MutationObserver(() => {
      for (const row of document.querySelectorAll('[data-task]')) window.seen[row.dataset.task] ??= Date.now();
    }).observe(document.body, { subtree: true, childList: true });
  });
  const delays = [];
  for (let round = 0; round < 5; round += 1) {
    const { id } = await bridge.send(`hello ${round}`);
    await until(page, 'the turn is in the list', (task) => window.seen[task], id);
    const shown = await page.evaluate((task) => window.seen[task], id);
    const { timelines } = await (await fetch(`${bridge.admin.replace(/\/$/, '')}/turns/${id}`)).json();
    delays.push(shown - new Date(timelines[0].accepted).getTime());
  }
  delays.sort((a, b) => a - b);
  journey.note(`on screen after ${delays.join(', ')} ms`);
  expect(delays[2] <= SOON, `a turn is on screen within ${SOON} ms, not after ${delays.join(', ')} ms`);

  const { id } = await bridge.send('tck-cancel please');
  const row = page.locator(`[data-task="${id}"]`);
  await row.getByText('working').waitFor();
  await row.getByRole('link').click();
  await page.getByRole('region', { name: 'Timeline' }).waitFor();
  const fall = page.locator('.waterfall');
  for (const kind of ['queued', 'guest', 'now']) await fall.getByText(kind, { exact: true }).waitFor();
  await page.getByRole('region', { name: 'Conversation' }).getByText('tck-cancel please').waitFor();
  await page.getByRole('button', { name: 'Cancel turn' }).click();
  await page.getByRole('dialog').getByRole('button', { name: 'Cancel turn' }).click();
  await page.locator('h1 ~ p .state', { hasText: 'canceled' }).waitFor();
  await fall.getByText('outcome', { exact: true }).waitFor();
  const { result } = await bridge.call('GetTask', { id });
  expect(result.status.state === 'TASK_STATE_CANCELED', `the task is canceled, not ${result.status.state}`);
  await page.getByRole('link', { name: '← Turns' }).click();
  await row.getByText('canceled').waitFor();
}

async function talk(journey) {
  const bridge = await journey.up(Bridge.start(DEMO, { flags: ['--demo'] }));
  const page = await journey.page(bridge, { path: '#/try' });
  const message = page.getByLabel('Message', { exact: true });
  await message.fill('use a tool and tell me about wings');
  await message.press('Enter');
  const answer = page.locator('.bubble-agent').last();
  await answer.locator('.state', { hasText: 'completed' }).waitFor();
  await answer.locator('.tool', { hasText: 'demo' }).waitFor();
  await answer.getByText('about wings').first().waitFor();
  const frames = page.getByRole('region', { name: 'Raw events' });
  const chunks = await frames.getByText('chunk').count();
  expect(chunks > 3, `the answer came in pieces, not in ${chunks}`);
  expect((await answer.locator('.said').count()) === 1, 'the whole answer replaced its pieces');
  await journey.picture(page, 'try it');

  await page.getByRole('button', { name: 'New conversation' }).click();
  await page.getByLabel('Executor').selectOption('asker');
  await message.fill('tck-input-required');
  await message.press('Enter');
  await page.getByText('It asks.').waitFor();
  await page.locator('.bubble-agent').last().getByText('Please provide more input').waitFor();
  await page.getByRole('button', { name: 'yes', exact: true }).click();
  const reply = page.locator('.bubble-agent').last();
  await reply.locator('.state', { hasText: 'completed' }).waitFor();
  await reply.getByText('Completed: yes').waitFor();
}

async function keyboard(journey) {
  const bridge = await journey.up(Bridge.start(CONFORMANCE + ADMIN, { env: SECRET }));
  const page = await journey.page(bridge);
  const token = page.getByLabel('Admin token');
  await token.waitFor();
  // The field has the focus.
  await page.keyboard.type('wrong');
  await page.keyboard.press('Enter');
  await page.getByRole('alert').waitFor();
  await page.keyboard.press('Control+A');
  await page.keyboard.type(TOKEN);
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'Overview' }).waitFor();
  const cookies = await page.context().cookies();
  expect(cookies.length === 1 && cookies[0].httpOnly && cookies[0].sameSite === 'Strict', 'the session is one strict cookie that scripts cannot read');
  await page.reload();
  await page.getByRole('heading', { name: 'Overview' }).waitFor();

  await page.keyboard.press('?');
  await page.getByRole('dialog', { name: 'Keys' }).waitFor();
  await page.keyboard.press('Escape');
  await page.getByRole('dialog').waitFor({ state: 'detached' });
  await page.keyboard.press('g');
  await page.keyboard.press('e');
  await page.getByRole('heading', { name: 'Executors' }).waitFor();
  // The skip link is the first stop of a page that was just loaded.
  await page.reload();
  await page.getByRole('heading', { name: 'Executors' }).waitFor();
  await focus(page, (at) => at.textContent === 'conformance');
  const outline = await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
  expect(outline !== 'none', 'the focus is visible');
  await page.keyboard.press('Enter');
  await page.getByRole('heading', { name: 'conformance' }).waitFor();
  await page.getByRole('region', { name: 'Needs and grants', exact: true }).waitFor();
  await focus(page, (at) => at.textContent === 'Reload');
  await page.keyboard.press('Enter');
  await page.getByRole('status', { name: 'Reload' }).getByText('takes turns').waitFor();
  await focus(page, (at) => at.textContent === 'Sign out', true);
  await page.keyboard.press('Enter');
  await token.waitFor();
  const answer = await page.evaluate(async () => (await fetch('/turns')).status);
  expect(answer === 401, `after the sign-out nothing is readable, but /turns answered ${answer}`);
}

/** Presses Tab until the focus is where it should be. */
async function focus(page, is, backwards = false) {
  for (let presses = 0; presses < 80; presses += 1) {
    await page.keyboard.press(backwards ? 'Shift+Tab' : 'Tab');
    if (await page.evaluate(`(${is})(document.activeElement)`)) return;
  }
  throw new Error(`expected: Tab reaches ${is}`);
}
