// Runs the start page when it is opened, so that a newcomer meets its form and not its cells, and lets every runbook open
// without unsaved changes.  Running the start page changes nothing, as "Run all" does.  jupyter_lab_config.py names the
// page, and names none if it is not the one that is shipped.
// Written as JupyterLab loads a built extension, so that nothing has to be built.

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
    await app.commands.execute("notebook:run-all-cells"); // of the current notebook
    model.dirty = false; // outputs are not stored
  }

  function activate(app) {
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
