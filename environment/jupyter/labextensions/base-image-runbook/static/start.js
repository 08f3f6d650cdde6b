// Runs the start page when it is opened, so that a newcomer sees its form instead of its cells, and opens every runbook
// without unsaved changes.  Running the start page changes nothing, just like "Run all".  jupyter_lab_config.py names the
// page only if it is the shipped one.  No key typed in a form leaves it: JupyterLab would cut the cell at an x.
// Written in the form of a built JupyterLab extension, so that no build is needed.

(() => {
  function startPage() {
    const config = document.getElementById("jupyter-config-data");
    return config ? JSON.parse(config.textContent).runbookStart : undefined;
  }

  async function open(app, panel) {
    await panel.context.ready;
    const model = panel.context.model;
    if (!model.getMetadata?.("runbook")) return;
    const cells = () => JSON.stringify(model.toJSON().cells);
    const before = cells();
    await panel.sessionContext.ready;
    const kernel = panel.sessionContext.session?.kernel;
    if (!kernel) return;
    await kernel.info;
    await new Promise((resolve) => setTimeout(resolve)); // JupyterLab notes the kernel's language in the notebook
    if (cells() === before) model.dirty = false;
    if (panel.context.path !== startPage() || app.shell.currentWidget !== panel) return;
    const code = () => JSON.stringify(model.toJSON().cells.map((cell) => cell.source));
    const shipped = code();
    const keepClean = () => {
      if (model.dirty && code() === shipped) model.dirty = false; // outputs are not stored
    };
    model.stateChanged.connect(keepClean); // the board changes while a run goes on
    await app.commands.execute("notebook:run-all-cells"); // of the current notebook
    keepClean();
  }

  const stop = (event) => event.stopPropagation();

  function keepKeys(event) {
    const form = event.target.closest(".runbook-form");
    if (!form) return;
    form.tabIndex = -1; // a click on its text would focus the cell
    form.addEventListener("keydown", stop);
  }

  function activate(app) {
    document.addEventListener("pointerdown", keepKeys, true);
    document.addEventListener("focusin", keepKeys);
    const opened = new WeakSet();
    const look = () => {
      const panel = app.shell.currentWidget;
      if (!panel?.sessionContext || !panel.context || opened.has(panel)) return;
      opened.add(panel);
      open(app, panel);
    };
    app.shell.currentChanged.connect(look);
    app.restored.then(look);
  }

  const plugin = { id: "base-image-runbook:start", autoStart: true, activate };
  window._JUPYTERLAB = window._JUPYTERLAB || {};
  window._JUPYTERLAB["base-image-runbook"] = { init: () => {}, get: async () => () => ({ __esModule: true, default: plugin }) };
})();
