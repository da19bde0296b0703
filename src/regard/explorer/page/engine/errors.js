/** Errors that a request can cause, with the status that the server would give them. */

export class InputError extends Error {
  status = 400;
}

/** Nothing has the name or number that was requested. */
export class MissingError extends InputError {
  status = 404;
}

/** More was requested than one answer may contain. */
export class TooBigError extends InputError {
  status = 413;
}

/** Python's way to show a text in a message. */
export const quoted = (text) => `'${String(text).slice(0, 100)}'`;
