# Loads Debian's Redmine so that it reads /usr/share/redmine and writes nothing but what it is told to.
#
# Debian's package expects a database, a log and a cache in /etc, /var/log and /var/cache, which only
# www-data may use; here everything lies in folders of the caller, and caches are off, because one
# process serves many episodes.
require 'fileutils'
require 'uri'

REDMINE = '/usr/share/redmine'

ENV['TZ'] = 'UTC'
ENV['RAILS_ENV'] = 'production'
ENV.delete('RUBYOPT')
ENV.delete('X_DEBIAN_SITEID')
ENV['REDMINE_INSTANCE'] = 'none' # the default one has a key that only www-data may read

require_relative 'episode_clock'

# gems: folder of Gemfile and Gemfile.lock (of our own: Debian's names an adapter only to those who may
# read its database.yml); state: folder for what Redmine writes beside its database.
# All three must be absolute: Rails takes others for names below its own folder.
def boot_redmine(gems:, state:, database:)
  [gems, state, database].each { |path| raise ArgumentError, path unless path.start_with?('/') }
  ENV['BUNDLE_GEMFILE'] = File.join(gems, 'Gemfile')
  ENV['BUNDLE_USER_HOME'] = state
  ENV['BUNDLE_APP_CONFIG'] = state
  ENV['DATABASE_URL'] = "sqlite3:#{URI::DEFAULT_PARSER.escape(database)}"
  FileUtils.mkdir_p(File.join(state, 'log'))
  require File.join(REDMINE, 'config', 'application')
  Redmine.define_singleton_method(:root) { Pathname.new(state) } # attachments and thumbnails
  configure(RedmineApp::Application.config, state)
  Rails.application.initialize!
  switch_off_caches
end

def configure(config, state)
  config.paths['log'] = File.join(state, 'log', 'redmine.log')
  config.paths['tmp'] = File.join(state, 'tmp')
  config.paths['config/database'] = File.join(state, 'none.yml') # DATABASE_URL says where
  config.logger = ActiveSupport::Logger.new(File.join(state, 'log', 'redmine.log'))
  config.log_level = :error
  config.secret_key_base = 'public: the sites are reached from this machine alone'
  config.session_store :cookie_store, key: 'redmine_session', path: '/', same_site: :lax
  config.cache_store = :null_store
  config.redmine_search_cache_store = :null_store
  config.action_controller.perform_caching = false
  config.active_job.queue_adapter = :inline # a job of another thread would find another database
  config.hosts.clear
end

def switch_off_caches
  ActionMailer::Base.perform_deliveries = false
  Redmine::Search.class_variable_set(:@@cache_store, nil)
end
