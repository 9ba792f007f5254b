require_relative 'boot'
require_relative 'episode_databases'

template = File.join(PREPARED, 'template.sqlite3')
boot_redmine(gems: File.join(PREPARED, 'gems'), state: File.join(EPISODES, 'state'), database: template)
ActiveRecord::Base.remove_connection

# Static files need no episode and do not wait for one.
use Rack::Static,
    urls: %w[/images /javascripts /stylesheets /themes /help /favicon.ico],
    root: File.join(REDMINE, 'public'),
    header_rules: [[:all, { 'Cache-Control' => 'public, max-age=86400' }]]
use EpisodeDatabases, template: template, folder: EPISODES
run Rails.application
